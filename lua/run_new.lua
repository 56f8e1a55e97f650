-- run_new: creates the budget of a run, unless it exists or its owner has too many open runs.
-- Idempotent on the run's id: the first creation counts.
-- Libraries: time.
--
-- KEYS  1 run (HASH)  2 runs of the org (ZSET id by end)  3 runs of the same owner (ZSET id by end)
-- ARGV  1 now  2 id  3 what (JSON, opaque)  4 amount  5 life in us  6 latest end in us, 0: any
--       7 most open runs of the owner  8 how long a run is kept after its end, in ms
--       9 when it counts as created, in us, 0: now
-- Reply list: "made" | "there" | "full", then the fields of the run

local run, all, siblings = KEYS[1], KEYS[2], KEYS[3]
local given, id, what, amount, life, latest, most, keep_ms, created = unpack(ARGV)
local call = redis.call

local function reply(verdict)
  return { verdict, unpack(call('HGETALL', run)) }
end

if call('EXISTS', run) == 1 then return reply('there') end
local now = now_us(given)
local kept = int(now - keep_ms * 1000)
call('ZREMRANGEBYSCORE', all, '-inf', kept)
call('ZREMRANGEBYSCORE', siblings, '-inf', kept)
if call('ZCOUNT', siblings, '(' .. int(now), '+inf') >= tonumber(most) then return { 'full' } end

local ends = now + life
if tonumber(latest) > 0 and tonumber(latest) < ends then ends = tonumber(latest) end
local ttl = int(math.ceil((ends - now) / 1000) + keep_ms)
if created == '0' then created = int(now) end
call('HSET', run, 'what', what, 'amount', amount, 'created', created, 'expires', int(ends))
call('PEXPIRE', run, ttl)
for _, list in ipairs({ all, siblings }) do
  call('ZADD', list, int(ends), id)
  if call('PTTL', list) < tonumber(ttl) then call('PEXPIRE', list, ttl) end
end
return reply('made')
