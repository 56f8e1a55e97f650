-- peek: the state of limits, and when a call would be within each. What has left an exact window is
-- removed, so that it is read only once, and a state remembers the time (keep_time). Libraries: time,
-- shapes, shape_of, whole.
--
-- KEYS  one state key per limit
-- ARGV  1 now  2.. per limit: kind, p1, p2, what the call requests of it minus its amount
-- Reply as hold: "held,<at>;=<used>,<held>,<resets>,<frees>,<refused 0|1>;.." or "skew,<at>",
--       or "stale,<at>..": a limit has more to remove, run it again

local given = ARGV[1]
local now = now_us(given)
local out, stale = '', false
for i = 1, #KEYS do
  local key = KEYS[i]
  local kind, p1, p2, wanted = unpack(ARGV, 4 * i - 2, 4 * i + 1)
  local shape = whole(kind)
  local state = shape.read(key, p1, p2, now)
  if not state then return 'skew,' .. num(now) end
  if (state.stale or 0) > 100 or state.late then keep_time(kind, state, key, p1, p2) end
  if state.partial then stale = true end
  local over = state.used + wanted
  out = out .. row(state, over, shape.look(state, key, p1, max(over, 0)))
end
return (stale and 'stale,' or 'held,') .. num(now) .. out
