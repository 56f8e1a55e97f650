-- give: ends a live grant; an unused one returns its quota. Needs time, quota. Repeating it for the
-- same id does nothing.
-- KEYS 1 quota  2 slots
-- ARGV 1 now  2 id  3 at us, or -lease us if only Redis knows the time  4 tokens
--      5 how it was used (quota_settle)  6-10 rpm tpm concurrency burst otpm (quota_limits)
-- Reply "1" if this call ended the grant, else "0"
local quota_key, slots = KEYS[1], KEYS[2]
local given, id, at, tokens, used = unpack(ARGV, 1, 5)
local LIMITS_AT = 6 -- start of the limits in ARGV
at = tonumber(at)
if at < 0 then
  at = at + (redis.call('ZSCORE', slots, id) or 0) + (redis.call('HGET', quota_key, 'off') or 0)
end
if redis.call('ZREM', slots, id) == 0 then return '0' end
quota_settle(quota_key, given, LIMITS_AT, used, at, tonumber(tokens))
return '1'
