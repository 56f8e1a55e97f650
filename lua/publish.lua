-- Library: messages to channels. A channel has the same prefix as the keys (redis.prefix).

local function publish(channel, message)
  redis.call('PUBLISH', string.match(KEYS[1], '^(.-)lg:{') .. channel, message)
end
