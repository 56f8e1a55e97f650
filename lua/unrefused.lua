-- Library: makes the first write of a script that frees memory or restricts callers. It changes nothing. Redis refuses
-- the writes of a script for lack of memory only until its first write that needs none.
do
  local left = redis.call('PTTL', KEYS[1])
  if left < 0 then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], left) end
end
