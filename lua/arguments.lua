-- Library: reads KEYS and ARGV sequentially.

local keys_read, args_read = 0, 0

-- next_keys returns the next n keys.
local function next_keys(n)
  local first = keys_read + 1
  keys_read = keys_read + n
  return unpack(KEYS, first, keys_read)
end

-- next_args returns the next n arguments.
local function next_args(n)
  local first = args_read + 1
  args_read = args_read + n
  return unpack(ARGV, first, args_read)
end
