-- file_keep: the bytes of a file stay until a time at least, because a batch
-- reads them.
-- KEYS 1 record  ARGV 1 until s
-- Reply "ok" | "missing"
local f = redis.call('HMGET', KEYS[1], 'created', 'keep', 'deleted')
if not f[1] or f[3] then return 'missing' end
if tonumber(f[2] or 0) < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'keep', ARGV[1]) end
return 'ok'
