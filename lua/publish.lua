-- Library: messages to channels. A channel has the same prefix as the keys (redis.prefix).

local channel_prefix = string.match(KEYS[1], '^(.-)lg:{')

local function publish(channel, message) redis.call('PUBLISH', channel_prefix .. channel, message) end
