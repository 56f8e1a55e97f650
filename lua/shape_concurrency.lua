-- Library: the shape of kind n (needs shapes).
--
-- Concurrency (p1 = lease in us). ZSET: hold ids by the end of their lease.

--@ read
local open = call('ZCOUNT', key, '(' .. num(now), '+inf')
st = { used = open, held = open, now = now }

--@ charge
if st.enter then -- another call of the same run
  st.others = st.others or {}
  st.others[#st.others + 1] = st.enter
end
st.used, st.held, st.enter, place = st.used + 1, st.held + 1, id, '0'

--@ text
text = fmt('%d,%d', st.used, st.held)

--@ write
if st.leave then call('ZREM', key, st.leave) end
if st.enter then
  call('ZREMRANGEBYSCORE', key, '-inf', num(st.now))
  local till = num(st.now + p1)
  call('ZADD', key, till, st.enter)
  if st.others then
    for i = 1, #st.others do call('ZADD', key, till, st.others[i]) end
  end
  call('PEXPIRE', key, num(floor(p1 / 1000) + GRACE_MS))
end

--@ change
st.leave = id

--@ rest
function s.look(st, key)
  local one = call('ZRANGEBYSCORE', key, '(' .. num(st.now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
  local last = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
  return tonumber(last[2] or 0), tonumber(one[2] or 0)
end

function s.forget() end
