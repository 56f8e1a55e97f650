-- count: counts one request in every limit, or in none if one refuses it. Nothing is held, so nothing
-- is given back. Libraries: time, shapes, shape_of, whole.
--
-- The field `id` of a state is the last request counted there. A repetition that directly follows is
-- not counted again; a later one is, which is too much and never too little.
--
-- KEYS  one state key per limit, of kind w or b, which are hashes
-- ARGV  1 now  2 id of the request  3.. per limit: kind, p1, p2, amount, mode
-- Reply "counted,<at>" or "refused,<at>", and a row per limit: the state's text, or of a limit that
--       is over its amount ";=<used>,<held>,<resets>,<frees>,1"

local given, id = ARGV[1], ARGV[2]
local now = now_us(given)
local states, refused, again = {}, false, false
for i = 1, #KEYS do
  local key = KEYS[i]
  local kind, p1, p2, amount, mode = unpack(ARGV, 5 * i - 2, 5 * i + 2)
  local shape = whole(kind)
  local state = shape.read(key, p1, p2, now)
  states[i] = { kind = kind, shape = shape, state = state, p1 = p1, p2 = p2, over = state.used + 1 - amount }
  if call('HGET', key, 'id') == id then again = true end
  if states[i].over > 0 and mode ~= 'shadow' then refused = true end
end
refused = refused and not again

local out = (refused and 'refused,' or 'counted,') .. num(now)
for i = 1, #KEYS do
  local key, one = KEYS[i], states[i]
  local shape, state, p1, p2, over = one.shape, one.state, one.p1, one.p2, one.over
  if not refused and not again then
    if state.other then shape.refill(state) end
    if state.busy then state.busy = num(state.now) end -- a bucket needs no dips: nothing is given back
    shape.charge(state, 1, id, 1, false)
    shape.write(state, key, p1, p2)
    call('HSET', key, 'id', id)
  elseif state.late then
    keep_time(one.kind, state, key, p1, p2)
  end
  if over > 0 and not again then
    out = out .. row(state, over, shape.look(state, key, p1, over))
  else
    out = out .. ';' .. shape.text(state)
  end
end
return out
