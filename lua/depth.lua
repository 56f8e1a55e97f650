-- depth: the contents of a pool. Needs time, rings, flows.
-- KEYS 1-23 pool (pool_keys)  24 exists while asynq's queue of the pool is paused
-- ARGV 1 now
-- Reply words: waiting interactive, async, batch; their tokens; jobs, bytes (all not ended);
-- claims; parked subjects; blocked us; requests and tokens in the ring; learned rpm and tpm, 0 =
-- none; factor of the pace, per mille; dead letters; live calls; us for which one model is blocked; whether
-- the queue is paused (1|0); output in the ring, its learned limit; the name of the blocked model. Each claim
-- has a slot too, so the remaining slots are live calls.
local pool, paused_key = pool_keys(), KEYS[24]
local given = ARGV[1]
local out = {}
for c = 1, 3 do out[c] = pickable(pool, c) end
local size = redis.call('HMGET', pool.size, 't1', 't2', 't3', 'jobs', 'bytes')
for k = 1, 5 do out[3 + k] = tonumber(size[k] or 0) end
out[9] = redis.call('ZCARD', pool.claims)
out[10] = redis.call('ZCARD', pool.parked)
local blocked, text, learned_rpm, learned_tpm, factor, factor_since, off, one, output, learned_otpm =
  unpack(redis.call('HMGET', pool.quota, 'blk', '_', 'rn', 'tn', 'f', 'fa', 'off', 'mb', 'out', 'on'))
local clock = now_us(given)
local now = clock + (off or 0)
out[11] = math.max((blocked or 0) - now, 0)
local requests, tokens = string.match(text or '', '^%d+,%d+,([^,]*)' .. string.rep(',[^,]*', 6) .. ',([^,]*)')
out[12] = tonumber(requests) or 0
out[13] = tonumber(tokens) or 0
out[14] = tonumber(learned_rpm or 0)
out[15] = tonumber(learned_tpm or 0)
out[16] = 1000
if factor_since then
  local grown = tonumber(factor) + math.max(now - factor_since, 0) / 50000
  out[16] = math.min(grown, 1000)
end
out[17] = redis.call('ZCARD', pool.dead)
local function held(key) return redis.call('ZCOUNT', key, '(' .. int(clock), '+inf') end
out[18] = math.max(held(pool.slots) - held(pool.claims), 0)
local till, name = string.match(one or '', '^(%d+) %d %S+ (.+)$')
out[19] = math.max((till or 0) - now, 0)
out[20] = redis.call('EXISTS', paused_key)
out[21] = tonumber(string.match(output or '', '^%d+') or 0)
out[22] = tonumber(learned_otpm or 0)
for k, v in ipairs(out) do out[k] = int(v) end
return table.concat(out, ' ') .. ' ' .. (name or '')
