-- file_keep: keeps the bytes of a file at least until a time, because a batch reads them.
-- KEYS 1 record
-- ARGV 1 until s
-- Reply "ok" | "missing"
local record = KEYS[1]
local till = ARGV[1]
local created, keep, deleted = unpack(redis.call('HMGET', record, 'created', 'keep', 'deleted'))
if not created or deleted then return 'missing' end
if tonumber(keep or 0) < tonumber(till) then redis.call('HSET', record, 'keep', till) end
return 'ok'
