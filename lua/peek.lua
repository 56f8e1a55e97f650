-- peek: the state of limits, and when a call would be within each. What has left an exact
-- window is taken out, so that it is read once. Libraries: time, shapes.
--
-- KEYS  one state key per limit
-- ARGV  1 now  2.. per limit: kind, p1, p2, what the call wants of it less its amount
-- Reply as hold: "held,<at>;=<used>,<held>,<resets>,<frees>,<refused 0|1>;.." or "skew,<at>",
--       or "stale,<at>..": a limit has more to forget, run it again

local now = now_us(ARGV[1])
local out, stale = '', false
for i = 1, #KEYS do
  local a = i * 4 - 2
  local s = whole(ARGV[a])
  local st = s.read(KEYS[i], ARGV[a + 1], ARGV[a + 2], now)
  if not st then return 'skew,' .. num(now) end
  if (st.stale or 0) > 100 then s.write(st, KEYS[i], ARGV[a + 1], ARGV[a + 2]) end
  if st.partial then stale = true end
  local over = st.used + ARGV[a + 3]
  out = out .. row(st, over, s.look(st, KEYS[i], ARGV[a + 1], max(over, 0)))
end
return (stale and 'stale,' or 'held,') .. num(now) .. out
