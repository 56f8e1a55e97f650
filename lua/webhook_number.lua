-- webhook_number: numbers the events of an org for a target in an hour. A repeated event keeps its number.
-- KEYS 1 events (ZSET event by number)
-- ARGV 1 event  2 most events  3 TTL ms
-- Reply the number, from 1; one more than the most for events that are not kept
local events = KEYS[1]
local event, most, ttl_ms = unpack(ARGV)
local number = redis.call('ZSCORE', events, event)
if number then return tonumber(number) end
number = redis.call('ZCARD', events) + 1
if number <= tonumber(most) then
  redis.call('ZADD', events, string.format('%.0f', number), event)
  redis.call('PEXPIRE', events, ttl_ms)
end
return number
