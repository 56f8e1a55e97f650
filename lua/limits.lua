-- Library: the limits of the current org (needs shapes, shape_of, arguments). A limit is a table:
--
--   key, kind, p1, p2   as in KEYS and ARGV
--   state               as read by its shape; nil: not read, or written since
--   text                the shape's text of the state since its last charge
--   changed             the state has to be written

local limits -- of the org

-- next_limits reads the org's limits.
local function next_limits(n)
  limits = {}
  for i = 1, n + 0 do
    local kind, p1, p2 = next_args(3)
    limits[i] = { key = next_keys(1), shape = shape_of(kind), kind = kind, p1 = p1, p2 = p2 }
  end
end

-- state_of returns a limit's state; nil: Go's calendar does not include now.
local function state_of(limit, now)
  local state = limit.state
  if not state then
    state = limit.shape.read(limit.key, limit.p1, limit.p2, now)
    limit.state = state
  end
  return state
end

-- write_limits stores the states that have changed.
local function write_limits()
  for i = 1, #limits do
    local limit = limits[i]
    if limit.changed then limit.shape.write(limit.state, limit.key, limit.p1, limit.p2, limit.text) end
  end
end
