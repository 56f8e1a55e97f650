-- batch_step: one step of the process that holds the batch; repeating it changes nothing. Needs
-- time.
-- KEYS 1 record (HASH)  2 lines put and not collected (HASH line -> custom_id)  3 chunks of results (LIST)
-- ARGV 1 now  2 token of the holder  3 number of the step  4 statuses it may start from, " a b "
--      5 JSON: {status, set {field: value}, stamp [field], inc {field: integer as text},
--        add {line: custom_id}, drop [line], push [chunk]}
-- Reply "ok <status>" | "status <status>" (not in ARGV 4) | "lost" (another process has the batch)
local record, lines, chunks = KEYS[1], KEYS[2], KEYS[3]
local given, token, number, from, json = unpack(ARGV)
local holder, last, status = unpack(redis.call('HMGET', record, 'token', 'step', 'status'))
if holder ~= token then return 'lost' end
if last == number then return 'ok ' .. status end
if tonumber(last) + 1 ~= tonumber(number) then return 'lost' end
if not string.find(from, ' ' .. status .. ' ', 1, true) then return 'status ' .. status end
local step = cjson.decode(json)
redis.call('HDEL', lines, '', unpack(step.drop or {}))
redis.call('HSET', record, 'step', number)
for field, value in pairs(step.set or {}) do redis.call('HSET', record, field, value) end
for field, value in pairs(step.inc or {}) do redis.call('HINCRBY', record, field, value) end
for line, id in pairs(step.add or {}) do redis.call('HSET', lines, line, id) end
for _, chunk in ipairs(step.push or {}) do redis.call('RPUSH', chunks, chunk) end
for _, field in ipairs(step.stamp or {}) do
  redis.call('HSET', record, field, int(math.floor(now_us(given) / 1000000)))
end
if step.status then redis.call('HSET', record, 'status', step.status) end
local ttl = redis.call('PTTL', record)
if ttl > 0 then
  redis.call('PEXPIRE', lines, int(ttl))
  redis.call('PEXPIRE', chunks, int(ttl))
end
return 'ok ' .. (step.status or status)
