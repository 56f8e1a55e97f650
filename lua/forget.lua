-- Library: has the states of limits read again (needs limits).

-- forget_limits has all states read again.
local function forget_limits()
  for i = 1, #limits do
    local limit = limits[i]
    limit.state, limit.text, limit.changed = nil, nil, nil
  end
end
