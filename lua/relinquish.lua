-- relinquish: takes an org off the registry after a look at its leases, or enters when
-- it is due next; not when it was registered again since that look began.
--
-- KEYS  1 registry, as in register
-- ARGV  1 org  2 the ms at which it was due  3 when it is due next; empty: never
-- Reply "ok" or "registered"

local was = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not was or tonumber(was) ~= tonumber(ARGV[2]) then return 'registered' end
redis.call('ZREM', KEYS[1], ARGV[1]) -- first write, never refused for memory
if ARGV[3] ~= '' then redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1]) end
return 'ok'
