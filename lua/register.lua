-- register: enters orgs in the registry, where every process finds those that are due for a check
-- of their leases. Library: time.
--
-- KEYS  1 registry (ZSET org by the ms from which it is due)
-- ARGV  1 lifetime of KEYS 1 in ms  2 what to do with an org that is already registered:
--         set: set the new due time; soonest: keep an earlier time, less one ms, so that a
--         concurrent check notices that there may be a new hold (see relinquish)
--       3 due ms  4.. orgs
-- Reply "ok"

local registry = KEYS[1]
local life, earlier, due = ARGV[1], ARGV[2], ARGV[3]
redis.call('PEXPIRE', registry, life) -- first write, never refused for lack of memory
for i = 4, #ARGV do
  local org, at = ARGV[i], due
  local was = earlier == 'soonest' and redis.call('ZSCORE', registry, org)
  if was and tonumber(was) < tonumber(due) then at = int(was - 1) end
  redis.call('ZADD', registry, at, org)
end
redis.call('PEXPIRE', registry, life) -- it may be new
return 'ok'
