-- register: enters orgs in the registry, where every process finds those whose leases
-- have to be looked at. Library: time.
--
-- KEYS  1 registry (ZSET org by the ms from which it is due)
-- ARGV  1 lifetime of KEYS 1 in ms  2 what becomes of an org that is due earlier:
--         set: it is due then; soonest: that stays, and one ms less shows whoever
--         looks meanwhile that a hold may have come (see relinquish)
--       3 due ms  4.. orgs
-- Reply "ok"

redis.call('PEXPIRE', KEYS[1], ARGV[1]) -- first write, never refused for memory
for a = 4, #ARGV do
  local at = ARGV[3]
  local was = ARGV[2] == 'soonest' and redis.call('ZSCORE', KEYS[1], ARGV[a])
  if was and tonumber(was) < tonumber(at) then at = int(was - 1) end
  redis.call('ZADD', KEYS[1], at, ARGV[a])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1]) -- it may be new
return 'ok'
