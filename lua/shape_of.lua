-- Library: which shape a kind is, and how a limit is told (needs shapes and the
-- shape_ libraries of the kinds in use).

-- shape_of returns the functions of a kind; only the kinds in use are built.
local ring, bucket, log, period, concurrency
local function shape_of(kind)
  if kind == 'w' then
    ring = ring or ring_shape()
    return ring
  elseif kind == 'b' then
    bucket = bucket or bucket_shape()
    return bucket
  elseif kind == 'x' then
    log = log or log_shape()
    return log
  elseif kind == 'c' then
    period = period or period_shape()
    return period
  end
  concurrency = concurrency or concurrency_shape()
  return concurrency
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
local function row(st, over, resets, frees)
  return fmt(';=%d,%d,%d,%d,%d', st.used, st.held, resets, frees, over > 0 and 1 or 0)
end
