-- renew: moves the lease ends of many open holds of one org, also of those whose lease
-- has run out and that nobody has expired yet. Library: time.
--
-- KEYS  1 holds  2 leases  3.. the concurrency limits of the holds, in order
-- ARGV  1 now  2 lease us  3 lifetime of KEYS 1, 2 in ms
--       4.. per hold: id, number of its keys
-- Reply "<at>,<earliest lease end or 0>" and ",<0|1>" per hold: 1 = renewed.

local now = now_us(ARGV[1])
local ends = int(now + ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3]) -- first write, never refused for memory
redis.call('PEXPIRE', KEYS[2], ARGV[3])
local key, out = 3, {}
for a = 4, #ARGV, 2 do
  local id, keys = ARGV[a], tonumber(ARGV[a + 1])
  local alive = redis.call('ZSCORE', KEYS[2], id)
  if alive then
    redis.call('ZADD', KEYS[2], ends, id)
    for k = key, key + keys - 1 do
      redis.call('ZADD', KEYS[k], 'XX', ends, id) -- not when it made room already
      redis.call('PEXPIRE', KEYS[k], math.floor(ARGV[2] / 1000) + 86460000) -- as in shape_concurrency
    end
  end
  key = key + keys
  out[#out + 1] = alive and ',1' or ',0'
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return int(now) .. ',' .. int(tonumber(first[2] or 0)) .. table.concat(out)
