-- Library: drops the cached states of limits (needs limits).

-- forget_limits drops all states, so that they are read again.
local function forget_limits()
  for i = 1, #limits do
    local limit = limits[i]
    limit.state, limit.text, limit.changed = nil, nil, nil
  end
end
