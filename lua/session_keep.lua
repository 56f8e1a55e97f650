-- session_keep: stores an administrator's session for all proxies. Needs unrefused: who frees memory has to sign in.
-- KEYS 1 session  2 index of the sessions, by last use
-- ARGV 1 now in s  2 encrypted session  3 its life in s  4 maximum number of sessions
-- Reply the excess sessions, unused for longest
local session, index = KEYS[1], KEYS[2]
local now, text, life, most = unpack(ARGV)
redis.call('SET', session, text, 'EX', life)
redis.call('ZADD', index, now, session)
redis.call('ZREMRANGEBYSCORE', index, '-inf', now - life)
redis.call('EXPIRE', index, life)
return redis.call('ZRANGE', index, 0, -1 - most)
