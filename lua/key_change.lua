-- key_change: the holder of an idempotency key reports what became of its request.
-- Needs time.
-- KEYS 1 record
-- ARGV 1 now  2 id of the holder  3 what: free (the next request may start again), renew
--      (the lease), bind (to a job), leave (the job, to a caller that repeats the request),
--      done (an answer is kept), undo (done with that answer)  4 lease us, or the id of the job or answer  5 TTL ms
-- Reply "ok" | "lost" (another holder has the key)
local record = KEYS[1]
local given, holder, what, more, ttl_ms = unpack(ARGV)
if what == 'undo' then
  if redis.call('HGET', record, 'answer') ~= more then return 'lost' end
  redis.call('DEL', record)
  return 'ok'
end
if redis.call('HGET', record, 'holder') ~= holder then return 'lost' end
if what == 'free' then
  redis.call('DEL', record)
elseif what == 'renew' then
  local lease = tonumber(more)
  redis.call('HSET', record, 'until', int(now_us(given) + lease))
  if redis.call('HEXISTS', record, 'job') == 0 then
    redis.call('PEXPIRE', record, int(math.ceil(lease / 1000)))
  end
elseif what == 'bind' then
  redis.call('HSET', record, 'job', more)
  redis.call('PEXPIRE', record, ttl_ms)
elseif what == 'leave' then
  redis.call('HSET', record, 'until', '0', 'holder', '')
elseif what == 'done' then
  redis.call('HSET', record, 'answer', more, 'until', '0', 'holder', '')
  redis.call('PEXPIRE', record, ttl_ms)
end
return 'ok'
