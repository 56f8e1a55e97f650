-- export: who writes an org's ledger to files, and how far it is written.
-- Libraries: time.
--
-- KEYS  1 export (HASH owner, until in us, position)  2 ledger (STREAM)
-- ARGV  1 now  2 owner  3 lease us, 0 lets go  4 new position, empty: unchanged
--       5 lifetime of KEYS 1 in ms  6 how many entries to keep, 0: do not trim
-- Reply "<verdict>,<position>"; position: the last ledger id that is written, or 0-0.
--       verdict: mine | busy (another owner's lease runs; nothing was changed)

local now = now_us(ARGV[1])
local got = redis.call('HMGET', KEYS[1], 'owner', 'until', 'position')
local position = got[3] or '0-0'
if got[1] and got[1] ~= ARGV[2] and tonumber(got[2]) > now then return 'busy,' .. position end
-- A new position is taken only from whoever owns the export: an owner that lost it
-- has to look first.
if ARGV[4] ~= '' then
  if got[1] ~= ARGV[2] then return 'busy,' .. position end
  position = ARGV[4]
end
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'until', int(now + ARGV[3]), 'position', position)
redis.call('PEXPIRE', KEYS[1], ARGV[5])

-- The newest entries are kept, and with them every one behind the position: if there
-- are too many of those to count, nothing is trimmed yet.
local keep = tonumber(ARGV[6])
if keep > 0 then
  local most = math.min(keep, 1000)
  local behind = redis.call('XRANGE', KEYS[2], '(' .. position, '+', 'COUNT', int(most))
  if #behind < most then redis.call('XTRIM', KEYS[2], 'MAXLEN', '~', int(keep)) end
end
return 'mine,' .. position
