-- batch_step: one step of the process that holds the batch; a repeated one
-- changes nothing. Needs time.
-- KEYS 1 record (HASH)  2 lines put and not collected (HASH line -> custom_id)  3 chunks of results (LIST)
-- ARGV 1 now  2 token of the holder  3 number of the step  4 statuses it may start from, " a b "
--      5 JSON: {status, set {field: value}, stamp [field], inc {field: integer as text},
--        add {line: custom_id}, drop [line], push [chunk]}
-- Reply "ok <status>" | "status <status>" (it is another) | "lost" (another process has the batch)
local b = redis.call('HMGET', KEYS[1], 'token', 'step', 'status')
if b[1] ~= ARGV[2] then return 'lost' end
if b[2] == ARGV[3] then return 'ok ' .. b[3] end
if tonumber(b[2]) + 1 ~= tonumber(ARGV[3]) then return 'lost' end
if not string.find(ARGV[4], ' ' .. b[3] .. ' ', 1, true) then return 'status ' .. b[3] end
local s = cjson.decode(ARGV[5])
redis.call('HDEL', KEYS[2], '', unpack(s.drop or {}))
redis.call('HSET', KEYS[1], 'step', ARGV[3])
for field, value in pairs(s.set or {}) do redis.call('HSET', KEYS[1], field, value) end
for field, value in pairs(s.inc or {}) do redis.call('HINCRBY', KEYS[1], field, value) end
for line, id in pairs(s.add or {}) do redis.call('HSET', KEYS[2], line, id) end
for _, chunk in ipairs(s.push or {}) do redis.call('RPUSH', KEYS[3], chunk) end
for _, field in ipairs(s.stamp or {}) do redis.call('HSET', KEYS[1], field, int(math.floor(now_us(ARGV[1]) / 1000000))) end
if s.status then redis.call('HSET', KEYS[1], 'status', s.status) end
local ttl = redis.call('PTTL', KEYS[1])
for i = 2, 3 do if ttl > 0 then redis.call('PEXPIRE', KEYS[i], int(ttl)) end end
return 'ok ' .. (s.status or b[3])
