-- Library: the shape of each kind (needs shapes).

-- new_shape returns the functions of a kind.
local function new_shape(kind)
  if kind == 'w' then
    --+ shape_ring
  elseif kind == 'b' then
    --+ shape_bucket
  elseif kind == 'x' then
    --+ shape_log
  elseif kind == 'c' then
    --+ shape_period
  elseif kind == 'd' then
    --+ shape_active
  else
    --+ shape_concurrency
  end
end

-- shape_of is new_shape, called once for each kind in use.
local shapes_made = {}
local function shape_of(kind)
  local shape = shapes_made[kind]
  if not shape then
    shape = new_shape(kind)
    shapes_made[kind] = shape
  end
  return shape
end
