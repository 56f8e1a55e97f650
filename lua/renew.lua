-- renew: extends the leases of many open holds of one org, also of those whose lease has run out
-- but that have not been expired yet. Library: time.
--
-- KEYS  1 holds  2 leases  3.. the concurrency limits of the holds, in order
-- ARGV  1 now  2 lease us  3 lifetime of KEYS 1, 2 in ms
--       4.. per hold: id, number of its limits in KEYS
-- Reply "<at>,<earliest lease end or 0>" and ",<0|1>" per hold: 1 = renewed.

local holds, leases = KEYS[1], KEYS[2]
local given, lease, life = ARGV[1], ARGV[2], ARGV[3]
local now = now_us(given)
local ends = int(now + lease)
redis.call('PEXPIRE', holds, life) -- first write, never refused for lack of memory
redis.call('PEXPIRE', leases, life)
local out, next_key = {}, 3
for i = 4, #ARGV, 2 do
  local id, limits = ARGV[i], tonumber(ARGV[i + 1])
  local alive = redis.call('ZSCORE', leases, id)
  if alive then
    redis.call('ZADD', leases, ends, id)
    for k = next_key, next_key + limits - 1 do
      local limit = KEYS[k]
      redis.call('ZADD', limit, 'XX', ends, id) -- not if the hold has already been removed
      redis.call('PEXPIRE', limit, math.floor(lease / 1000) + 86460000) -- as in shape_concurrency
    end
  end
  next_key = next_key + limits
  out[#out + 1] = alive and ',1' or ',0'
end
local first = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')
return int(now) .. ',' .. int(tonumber(first[2] or 0)) .. table.concat(out)
