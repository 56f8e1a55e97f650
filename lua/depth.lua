-- depth: what a pool holds. Needs time, rings, flows.
-- KEYS 1-23 pool
-- ARGV 1 now
-- Reply words: waiting interactive, async, batch; their tokens; jobs, bytes (all
-- not ended); claims; parked subjects; blocked us; requests and tokens in the ring;
-- learned rpm and tpm, 0 = none; factor of the pace, per mille; dead letters; live
-- calls. Each claim has a slot too, so the slots that are left are live calls.
local P, out = pool_keys(), {}
for c = 1, 3 do out[c] = pickable(P, c) end
local size = redis.call('HMGET', P.size, 't1', 't2', 't3', 'jobs', 'bytes')
for k = 1, 5 do out[3 + k] = tonumber(size[k] or 0) end
out[9], out[10] = redis.call('ZCARD', P.claims), redis.call('ZCARD', P.parked)
local quota = redis.call('HMGET', P.quota, 'blk', '_', 'rn', 'tn', 'f', 'fa', 'off')
local clock = now_us(ARGV[1])
local now = clock + (quota[7] or 0)
out[11] = math.max((quota[1] or 0) - now, 0)
out[14], out[15], out[16] = tonumber(quota[3] or 0), tonumber(quota[4] or 0), 1000
if quota[6] then
  local grown = tonumber(quota[5]) + math.max(now - quota[6], 0) / 50000
  out[16] = math.min(grown, 1000)
end
out[17] = redis.call('ZCARD', P.dead)
local function held(key) return redis.call('ZCOUNT', key, '(' .. int(clock), '+inf') end
out[18] = math.max(held(P.slots) - held(P.claims), 0)
local r, t = string.match(quota[2] or '', '^%d+,%d+,([^,]*)' .. string.rep(',[^,]*', 6) .. ',([^,]*)')
out[12], out[13] = tonumber(r) or 0, tonumber(t) or 0
for k, v in ipairs(out) do out[k] = int(v) end
return table.concat(out, ' ')
