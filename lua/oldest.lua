-- oldest: the longest-waiting jobs of a pool. Needs time, rings, flows.
-- KEYS 1-23 pool (pool_keys)
-- ARGV 1 now (not read)  2 maximum number of lanes of each class to check
-- Reply words: for interactive, async, batch the id of the job put first, "-" for none; then 1 if
-- lanes were left out, else 0 The ids of a pool begin with the same letters and then the time, so
-- they sort by age.
local pool = pool_keys()
local most = tonumber(ARGV[2])
local out, cut = {}, 0
for class = 1, 3 do
  local from, first = '-', nil
  for n = 1, most + 1 do
    local member = redis.call('ZRANGEBYLEX', pool.wait[class], from, '(' .. RESERVED, 'LIMIT', 0, 1)[1]
    if not member then break end
    if n > most then
      cut = 1
      break
    end
    local org, user, id, _, lane = member_parts(member)
    if not first or id < first then first = id end
    from = '(' .. org .. ' ' .. user .. ' ' .. lane .. '!'
  end
  out[class] = first or '-'
end
out[4] = cut
return table.concat(out, ' ')
