-- key_change: the holder of an idempotency key says what became of its request.
-- Needs time.
-- KEYS 1 record
-- ARGV 1 now  2 id of the holder  3 what: free (the next may start anew), renew
--      (the lease), bind (to a job), leave (the job, to whoever comes back), done
--      (an answer is kept)  4 lease us, or the id of the job or answer  5 TTL ms
-- Reply "ok" | "lost" (somebody else holds the key)
if redis.call('HGET', KEYS[1], 'holder') ~= ARGV[2] then return 'lost' end
local what = ARGV[3]
if what == 'free' then
  redis.call('DEL', KEYS[1])
elseif what == 'renew' then
  redis.call('HDEL', KEYS[1], '') -- full memory allows this, and then every write after it
  redis.call('HSET', KEYS[1], 'until', int(now_us(ARGV[1]) + tonumber(ARGV[4])))
  if redis.call('HEXISTS', KEYS[1], 'job') == 0 then redis.call('PEXPIRE', KEYS[1], int(math.ceil(tonumber(ARGV[4]) / 1000))) end
elseif what == 'bind' then
  redis.call('HSET', KEYS[1], 'job', ARGV[4])
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
elseif what == 'leave' then
  redis.call('HSET', KEYS[1], 'until', '0', 'holder', '')
elseif what == 'done' then
  redis.call('HSET', KEYS[1], 'answer', ARGV[4], 'until', '0', 'holder', '')
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return 'ok'
