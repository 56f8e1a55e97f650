-- relinquish: removes an org from the registry after a check of its leases, or sets when it is due
-- next; not if it was registered again since that check began.
--
-- KEYS  1 registry, as in register
-- ARGV  1 org  2 the ms at which it was due  3 when it is due next; empty: never
-- Reply "ok" or "registered"

local registry = KEYS[1]
local org, due, next_due = unpack(ARGV)
local was = redis.call('ZSCORE', registry, org)
if not was or tonumber(was) ~= tonumber(due) then return 'registered' end
redis.call('ZREM', registry, org) -- first write, never refused for lack of memory
if next_due ~= '' then redis.call('ZADD', registry, next_due, org) end
return 'ok'
