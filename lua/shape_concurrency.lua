-- Library: the shape of kind n (needs shapes).
--
-- Concurrency (p1 = lease in us). ZSET: hold ids by the end of their lease.
local function concurrency_shape()
  return {
    read = function(key, _, _, now)
      local n = call('ZCOUNT', key, '(' .. num(now), '+inf')
      return { used = n, held = n, now = now, over = 0 }
    end,

    charge = function(st, _, id)
      st.used, st.held, st.enter = st.used + 1, st.held + 1, id
      return '0'
    end,

    write = function(st, key, lease)
      if st.leave then call('ZREM', key, st.leave) end
      if st.enter then
        call('ZREMRANGEBYSCORE', key, '-inf', num(st.now))
        call('ZADD', key, num(st.now + lease), st.enter)
        call('PEXPIRE', key, num(floor(lease / 1000) + GRACE_MS))
      end
      return fmt('%d,%d', st.used, st.held)
    end,

    rest = function(s)
      function s.change(st, _, _, _, _, _, id)
        st.leave = id
        return 0
      end

      function s.look(st, key)
        local one = call('ZRANGEBYSCORE', key, '(' .. num(st.now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
        local last = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
        return tonumber(last[2] or 0), tonumber(one[2] or 0)
      end

      function s.forget() end
    end,
  }
end
