-- Library: makes the first write of a script that frees memory or restricts callers. It changes nothing. Redis refuses
-- the writes of a script for lack of memory only until its first write that needs none.
do
  local key = KEYS[1]
  local left = redis.call('PTTL', key)
  if left < 0 then redis.call('PERSIST', key) else redis.call('PEXPIRE', key, left) end
end
