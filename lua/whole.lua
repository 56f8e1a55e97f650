-- Library: all functions of a shape, and the reply row of a limit (needs shape_of).

-- whole returns all functions of a kind.
local function whole(kind)
  local shape = shape_of(kind)
  if shape.rest then
    shape.rest(shape)
    shape.rest = nil
  end
  return shape
end

-- keep_time writes a state that was only read. The first write is never refused for lack of memory.
local function keep_time(kind, st, key, p1, p2)
  call((kind == 'w' or kind == 'b') and 'HDEL' or 'ZREM', key, '')
  whole(kind).write(st, key, p1, p2)
end

-- row formats a limit for Go.
local function row(st, over, resets, frees)
  return fmt(';=%d,%d,%d,%d,%d', st.used, st.held, resets, frees, over > 0 and 1 or 0)
end
