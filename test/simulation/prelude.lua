-- Precedes every script of a run, and makes key expiry use virtual time. A key that
-- expires at t gets the expiry BASE + t, which never comes; store.expire deletes it.
local redis = (function(real)
  local BASE = 3000000000000
  local now = tonumber(table.remove(ARGV)) -- ms, appended to the script's own arguments
  local function till(key, ms)
    return real.call('PEXPIREAT', key, string.format('%.0f', BASE + now + math.floor(ms)))
  end
  local function left(key)
    local at = real.call('PEXPIRETIME', key)
    return at < 0 and at or at - BASE - now
  end
  local virtual = {
    PEXPIRE = function(key, ms) return till(key, ms + 0) end,
    EXPIRE = function(key, s) return till(key, s * 1000) end,
    PTTL = left,
    TTL = function(key) local ms = left(key); return ms < 0 and ms or math.ceil(ms / 1000) end,
    SET = function(key, value, px, ms, ...)
      if px ~= 'PX' then return real.call('SET', key, value, px, ms, ...) end
      real.call('SET', key, value)
      return till(key, ms + 0)
    end,
  }
  local function call(name, ...)
    local own = virtual[name]
    if own then return own(...) end
    return real.call(name, ...)
  end
  return setmetatable({ call = call }, { __index = real })
end)(redis)
