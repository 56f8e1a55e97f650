-- Library: which shape a kind is, and how a limit is told (needs shapes and all
-- shape_ libraries).

-- shape_of returns the functions of a kind; only the kinds in use are built.
local built = {}
local function shape_of(kind)
  local s = built[kind]
  if s then return s end
  if kind == 'w' then
    s = ring_shape()
  elseif kind == 'b' then
    s = bucket_shape()
  elseif kind == 'x' then
    s = log_shape()
  elseif kind == 'c' then
    s = period_shape()
  else
    s = concurrency_shape()
  end
  built[kind] = s
  return s
end

-- whole returns all functions of a kind.
local function whole(kind)
  local s = shape_of(kind)
  if s.rest then
    s.rest(s)
    s.rest = nil
  end
  return s
end

-- row tells where a limit stands, in the form that Go reads.
local function row(st, resets, frees)
  return fmt(';=%d,%d,%d,%d,%d', st.used, st.held, resets, frees, st.over > 0 and 1 or 0)
end
