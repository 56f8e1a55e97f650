-- Part of shape_of: the shape of kind n (needs shapes).
--
-- Concurrency (p1 = lease in us). ZSET: hold ids by the end of their lease. A hold counts until it
-- ends or is expired by the process that sweeps: an expired lease may only mean that Redis could
-- not be reached to renew it. A hold that has not ended a day later is dropped.

local function read(key, _, _, now)
  local open = call('ZCOUNT', key, '(' .. num(now - FORGOTTEN_US), '+inf')
  return { used = open, held = open, now = now }
end

local function charge(st, n, id, nth, held)
  if st.enter then -- another call of the same run
    st.others = st.others or {}
    st.others[#st.others + 1] = st.enter
  end
  st.used, st.held, st.enter = st.used + 1, st.held + 1, id
  return '0'
end

local function text_of(st)
  return fmt('%d,%d', st.used, st.held)
end

local function write(st, key, p1)
  if st.leave then call('ZREM', key, st.leave) end
  if st.enter then
    call('ZREMRANGEBYSCORE', key, '-inf', num(st.now - FORGOTTEN_US))
    local till = num(st.now + p1)
    call('ZADD', key, till, st.enter)
    if st.others then
      for i = 1, #st.others do call('ZADD', key, till, st.others[i]) end
    end
    call('PEXPIRE', key, num(floor((p1 + FORGOTTEN_US) / 1000) + GRACE_MS))
  end
end

local function change(st, key, place, from, to, open, id, nth)
  st.leave = id
  return 0
end

local function rest(s)
  function s.look(st, key)
    local one = call('ZRANGEBYSCORE', key, '(' .. num(st.now - FORGOTTEN_US), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    if not one[2] then return 0, 0 end
    local last, soon = call('ZREVRANGE', key, '0', '0', 'WITHSCORES'), st.now + 1000000
    local function after(ends) return ends - st.now > 0 and ends + 0 or soon end -- otherwise it is swept soon
    return after(last[2]), after(one[2])
  end

  function s.frees() return '' end

  function s.forget() end
end

return { read = read, charge = charge, change = change, text = text_of, write = write, rest = rest }
