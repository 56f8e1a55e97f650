-- peek: the state of limits, nothing written. Libraries: time, shapes.
--
-- KEYS  one state key per limit
-- ARGV  1 now  2.. per limit: kind, p1, p2
-- Reply as hold: "held,<at>;=<used>,<held>,<resets>,<frees>,0;.." or "skew,<at>"

local now = now_us(ARGV[1])
local out = 'held,' .. num(now)
for i = 1, #KEYS do
  local a = i * 3 - 1
  local s = whole(ARGV[a])
  local st = s.read(KEYS[i], ARGV[a + 1], ARGV[a + 2], now)
  if not st then return 'skew,' .. num(now) end
  out = out .. row(st, 0, s.look(st, KEYS[i], ARGV[a + 1], 0))
end
return out
