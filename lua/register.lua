-- register: enters orgs in the registry, where every process finds those whose leases
-- have to be looked at. Library: time.
--
-- KEYS  1 registry (ZSET org by the ms from which it is due)
-- ARGV  1 lifetime of KEYS 1 in ms  2 what becomes of an org that is due earlier:
--         set: it is due then; soonest: that stays, and one ms less shows whoever
--         looks meanwhile that a hold may have come (see relinquish)
--       3 due ms  4.. orgs
-- Reply "ok"

local registry = KEYS[1]
local life, earlier, due = ARGV[1], ARGV[2], ARGV[3]
redis.call('PEXPIRE', registry, life) -- first write, never refused for memory
for i = 4, #ARGV do
  local org, at = ARGV[i], due
  local was = earlier == 'soonest' and redis.call('ZSCORE', registry, org)
  if was and tonumber(was) < tonumber(due) then at = int(was - 1) end
  redis.call('ZADD', registry, at, org)
end
redis.call('PEXPIRE', registry, life) -- it may be new
return 'ok'
