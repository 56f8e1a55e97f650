-- run_change: adds to the amount of a run, or ends it. Adding is idempotent on the id of the change, as
-- long as the run exists: it remembers each of them, and admits MOST_CHANGES.
-- Libraries: time.
--
-- KEYS  1 run (HASH)  2 runs of the org (ZSET id by end)  3 runs of the same owner (ZSET id by end)
--       4 what it used (STRING, see shape_period)
-- ARGV  1 now  2 id of the run  3 id of what adds  4 amount to add; empty: end the run
--       5 largest amount  6 how long a run is kept after its end, in ms
-- Reply list: "ok" | "missing" | "ended" | "large" | "many", then the fields of the run

local run, all, siblings, used = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local given, id, change, add, most, keep_ms = unpack(ARGV)
local call = redis.call
local MOST_CHANGES, NAME_SIZE = 500, 16 -- older versions wrote names of 40 characters

local function reply(verdict)
  return { verdict, unpack(call('HGETALL', run)) }
end

local amount, expires, ended, changes = unpack(call('HMGET', run, 'amount', 'expires', 'ended', 'changes'))
if not amount then return { 'missing' } end
local name = redis.sha1hex(change):sub(1, NAME_SIZE)
if add ~= '' and changes and string.find(changes, name, 1, true) then return reply('ok') end
local now = now_us(given)
if ended or now >= tonumber(expires) then return reply(add == '' and 'ok' or 'ended') end
if add ~= '' then
  local sum = amount + add
  if sum > tonumber(most) then return reply('large') end
  changes = changes or ''
  if #changes >= MOST_CHANGES * NAME_SIZE then return reply('many') end
  call('HSET', run, 'amount', int(sum), 'changes', name .. changes)
  return reply('ok')
end
call('HSET', run, 'ended', int(now))
call('ZADD', all, 'XX', int(now), id)
call('ZADD', siblings, 'XX', int(now), id)
call('PEXPIRE', run, keep_ms)
call('PEXPIRE', used, keep_ms)
return reply('ok')
