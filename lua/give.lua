-- give: ends a live grant; an unused one returns its quota. Needs time, quota.
-- A second give of the same id does nothing.
-- KEYS 1 quota  2 slots
-- ARGV 1 now  2 id  3 at us, or -lease us when only Redis knows  4 tokens  5 how it was used (quota_settle)  6-9 rpm tpm concurrency burst
-- Reply "1" when this call ended the grant, else "0"
local at = tonumber(ARGV[3])
if at < 0 then
  at = at + (redis.call('ZSCORE', KEYS[2], ARGV[2]) or 0) + (redis.call('HGET', KEYS[1], 'off') or 0)
end
if redis.call('ZREM', KEYS[2], ARGV[2]) == 0 then return '0' end
quota_settle(KEYS[1], ARGV[1], 6, ARGV[5], at, tonumber(ARGV[4]))
return '1'
