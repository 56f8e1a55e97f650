-- export: tracks which process writes an org's ledger to files, and how far.
-- Libraries: time.
--
-- KEYS  1 export (HASH owner, until in us, position)  2 ledger (STREAM)
-- ARGV  1 now  2 owner  3 lease us, 0 releases it  4 new position, empty: unchanged
--       5 lifetime of KEYS 1 in ms  6 how many entries to keep, 0: do not trim
-- Reply "<verdict>,<position>"; position: the last ledger id that is written, or 0-0.
--       verdict: mine | busy (another owner's lease is valid; nothing was changed)

local export, ledger = KEYS[1], KEYS[2]
local given, owner, lease, new_position, life, keep = unpack(ARGV)
local now = now_us(given)
local last_owner, till, position = unpack(redis.call('HMGET', export, 'owner', 'until', 'position'))
position = position or '0-0'
if last_owner and last_owner ~= owner and tonumber(till) > now then return 'busy,' .. position end
-- Only the owner of the export may set a new position: an owner that lost it has to read the files
-- first.
if new_position ~= '' then
  if last_owner ~= owner then return 'busy,' .. position end
  position = new_position
end
redis.call('HSET', export, 'owner', owner, 'until', int(now + lease), 'position', position)
redis.call('PEXPIRE', export, life)

-- The newest entries are kept, and all entries after the position. If there are too many of those
-- to count, nothing is trimmed yet.
keep = tonumber(keep)
if keep > 0 then
  local most = math.min(keep, 1000)
  local behind = redis.call('XRANGE', ledger, '(' .. position, '+', 'COUNT', int(most))
  if #behind < most then redis.call('XTRIM', ledger, 'MAXLEN', '~', int(keep)) end
end
return 'mine,' .. position
