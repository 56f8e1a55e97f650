-- label_value: counts the different values of a label in an org and UTC day, up to a maximum.
-- Idempotent on the value.
--
-- KEYS  1 values (SET of hashes)
-- ARGV  1 hash of the value  2 most values  3 end of KEYS 1 in ms since 1970
-- Reply "1" if the value is among those counted, "0" if there are already as many as allowed

local values = KEYS[1]
local value, most, ends = unpack(ARGV)

if redis.call('SISMEMBER', values, value) == 1 then return '1' end
if redis.call('SCARD', values) >= tonumber(most) then return '0' end
redis.call('SADD', values, value)
redis.call('PEXPIREAT', values, ends)
return '1'
