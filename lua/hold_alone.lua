-- Part of hold: a call that is over a limit, possibly in shadow mode.

-- hold_alone handles one call that is over a limit.
local function hold_alone(wants, verdict)
  if verdict == 'skew' then return 'skew,' .. at end
  local out = verdict .. ',' .. at
  local kept = verdict == 'fits' or verdict == 'over'
  if kept then
    local record, states = charge(wants)
    write({ wants.id, record }, { num(now + lease), wants.id })
    out = 'held,' .. at
    if verdict == 'fits' then return out .. states end
  end
  for i = 1, #wants do
    local want = wants[i]
    local limit, state = want.limit, want.limit.state
    if kept and want.over <= 0 then
      out = out .. ';' .. limit.text
    else
      local shape = whole(limit.kind)
      if verdict == 'refused' and state.other then
        call('HDEL', limit.key, '') -- first write, never refused for lack of memory
        shape.refill(state)
        shape.write(state, limit.key, limit.p1, limit.p2)
      elseif not kept and ((state.stale or 0) > 100 or state.late) then
        keep_time(limit.kind, state, limit.key, limit.p1, limit.p2)
      end
      out = out .. row(state, want.over, shape.look(state, limit.key, limit.p1, max(want.over, 0)))
    end
  end
  return out
end
