-- reset: removes what was charged to one limit. Open holds stay counted, because their calls may
-- still cost that much. Libraries: time, shapes, shape_of, whole.
--
-- KEYS  1 the limit's state key
-- ARGV  1 now  2 kind  3 p1  4 p2
-- Reply as peek. stale: only what has left the window was removed.

local key = KEYS[1]
local given, kind, p1, p2 = unpack(ARGV)
local now = now_us(given)
local shape = whole(kind)
local state = shape.read(key, p1, p2, now)
if not state then return 'skew,' .. num(now) end
-- First write, never refused for lack of memory; PERSIST would leave windows without an expiry.
call('PEXPIRE', key, num(LONG_MS))
if not state.partial then shape.forget(state, key) end
shape.write(state, key, p1, p2)
return (state.partial and 'stale,' or 'held,') .. num(now) .. row(state, 0, 0, 0)
