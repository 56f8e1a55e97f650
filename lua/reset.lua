-- reset: forgets what was charged to one limit. Open holds stay counted: their
-- calls may still cost that much. Libraries: time, shapes.
--
-- KEYS  1 the limit's state key
-- ARGV  1 now  2 kind  3 p1  4 p2
-- Reply as peek. Stale: what has left the window was taken out, and nothing else.

local now = now_us(ARGV[1])
local s = whole(ARGV[2])
local st = s.read(KEYS[1], ARGV[3], ARGV[4], now)
if not st then return 'skew,' .. num(now) end
-- First write, never refused for memory; PERSIST would leave windows without end.
call('PEXPIRE', KEYS[1], num(LONG_MS))
if not st.partial then s.forget(st, KEYS[1]) end
s.write(st, KEYS[1], ARGV[3], ARGV[4])
return (st.partial and 'stale,' or 'held,') .. num(now) .. row(st, 0, 0, 0)
