-- frees: the states of limits, with when each frees what it counts. Needs time, shapes, shape_of, whole.
-- It only reads.
-- KEYS  one state key per limit
-- ARGV  1 now  2.. per limit: kind, p1, p2
-- Reply as hold: "held,<at>;<used>,<held><frees of the shape>;.." or "skew,<at>"
local given = ARGV[1]
local now = now_us(given)
local out = {}
for i = 1, #KEYS do
  local key = KEYS[i]
  local kind, p1, p2 = unpack(ARGV, 3 * i - 1, 3 * i + 1)
  local shape = whole(kind)
  local state = shape.read(key, p1, p2, now)
  if not state then return 'skew,' .. num(now) end
  out[i] = fmt(';%d,%d', state.used, state.held) .. shape.frees(state, key, p1)
end
return 'held,' .. num(now) .. table.concat(out)
