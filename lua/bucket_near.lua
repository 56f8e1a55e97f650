-- Part of shape_bucket: merges dips.

-- lowered returns a whole part minus what drains in e us, rounded down.
local function lowered(whole, e, r, p)
  local x = e * r
  if x < 9007199254740992 then return whole + floor(-x / p) end
  return whole - floor(x / p * 1.000000000000001) - 2
end

-- sink lowers the last dip and drops the ones before that are not below it.
local function sink(st, whole)
  st.more, st.whole = st.more - (st.whole - whole), whole
  while st.more <= 0 and st.hi - st.lo >= 0 do
    local _, _, more, g = field(st, st.hi)
    if st.more == 0 and g - st.g > 0 then break end
    st.more, st.hi, st.push = st.more + more, st.hi - 1, false
  end
end
