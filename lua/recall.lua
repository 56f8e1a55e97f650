-- recall: makes asynq's tasks pending whose lease has expired, as asynq's own requeue does, but
-- without its minute of grace: llmguard's claims decide whether a job still runs.
-- KEYS 1 active  2 lease  3 pending, of an asynq queue
-- ARGV 1 now in seconds  2 prefix of the keys of tasks  3 now in nanoseconds
-- Reply: the number of tasks
local active, lease, pending = KEYS[1], KEYS[2], KEYS[3]
local now, prefix, since = unpack(ARGV)
local ids = redis.call('ZRANGEBYSCORE', lease, '-inf', now, 'LIMIT', 0, 100)
for _, id in ipairs(ids) do
  redis.call('ZREM', lease, id) -- first, because it is allowed when memory is full
  if redis.call('LREM', active, 0, id) > 0 then
    redis.call('RPUSH', pending, id)
    redis.call('HSET', prefix .. id, 'state', 'pending', 'pending_since', since)
  end
end
return #ids
