-- calibrate: adds a batch of observations to running estimates, once. Libraries:
-- time.
--
-- An entry is "since,updated,n,mean,dev,q,m,e1,e2..", whole numbers, times in
-- ms: n observations of x (their average, mean deviation and high quantile) and
-- m of the averages e1, e2...
--
-- KEYS  1 entries (hash)  2 recent (zset: entry, ms of its last update)
--       3 the number of this process's last batch
-- ARGV  1 now  2 number of the batch  3 life of KEYS 3, ms
--       4 life of an entry without updates, ms  5 most entries  6 most n
--       then pairs entry, text: "=<name>" is stored as it is; else observations
--       "x,e1,e2.." separated by ";", x empty when it is not known
-- Reply "added" or "again" (nothing was done)

local WINDOW = 50 -- averages forget beyond so many observations
local START = 32  -- observations before the quantile is tracked on its own
local P = 0.98    -- the quantile
local STEP = 1000 -- least step of the quantile, in units of x

local now = math.floor(now_us(ARGV[1]) / 1000)
local number, life, most, most_n = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local last = redis.call('GET', KEYS[3])
if last and tonumber(last) >= number then return 'again' end

local function toward(old, new, n)
  return math.floor(old + (new - old) / math.min(n, WINDOW) + 0.5)
end

-- learn takes one x into the average, the deviation and the quantile.
local function learn(e, x)
  e.n = e.n + 1
  if e.n > 1 then e.dev = toward(e.dev, math.abs(x - e.mean), e.n - 1) end
  e.mean = toward(e.mean, x, e.n)
  if e.n <= START then
    e.q = e.mean + math.floor(2.5 * e.dev)
  else
    -- Steps small enough not to stray, and bounds for what spreads out or
    -- narrows faster than they go: 2 deviations are the 94th percentile of
    -- normal noise, 12 are beyond a tail of one in twenty.
    local step = math.max(e.dev / 4, STEP)
    if x >= e.q then e.q = e.q + P * step else e.q = e.q - (1 - P) * step end
    local above = math.max(2 * e.dev, math.min(e.q - e.mean, 12 * e.dev + STEP))
    e.q = math.floor(e.mean + above + 0.5)
  end
  if e.n > most_n then e.n = most_n end
end

-- average takes the moments e1, e2.. of one observation.
local function average(e, values)
  e.m = e.m + 1
  for i, v in ipairs(values) do e[i] = toward(e[i] or 0, v, e.m) end
  if e.m > most_n then e.m = most_n end
end

local function read(text)
  local e, i = {}, 0
  local names = { 'since', 'updated', 'n', 'mean', 'dev', 'q', 'm' }
  for v in string.gmatch(text or '', '-?%d+') do
    i = i + 1
    e[names[i] or i - #names] = tonumber(v)
  end
  if not e.m or e.updated + life < now then
    e = { since = now, n = 0, mean = 0, dev = 0, q = 0, m = 0 }
  end
  return e
end

local function write(e)
  local out = { int(e.since), int(now), int(e.n), int(e.mean), int(e.dev), int(e.q), int(e.m) }
  for _, v in ipairs(e) do out[#out + 1] = int(v) end
  return table.concat(out, ',')
end

for i = 7, #ARGV, 2 do
  local name, text = ARGV[i], ARGV[i + 1]
  if string.sub(text, 1, 1) ~= '=' then
    local e = read(redis.call('HGET', KEYS[1], name))
    for one in string.gmatch(text, '[^;]+') do
      local x, rest = string.match(one, '^([^,]*)(.*)$')
      if x ~= '' then learn(e, tonumber(x)) end
      local values = {}
      for v in string.gmatch(rest, '-?%d+') do values[#values + 1] = tonumber(v) end
      average(e, values)
    end
    text = write(e)
  end
  redis.call('HSET', KEYS[1], name, text)
  redis.call('ZADD', KEYS[2], int(now), name)
end

-- Entries without updates, and the oldest of too many.
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', int(now - life), 'LIMIT', 0, 200)
for _, name in ipairs(old) do
  redis.call('ZREM', KEYS[2], name)
  redis.call('HDEL', KEYS[1], name)
end
local excess = redis.call('ZCARD', KEYS[2]) - most
if excess > 0 then
  for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, int(excess - 1))) do
    redis.call('ZREM', KEYS[2], name)
    redis.call('HDEL', KEYS[1], name)
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[3], int(number), 'PX', ARGV[3])
return 'added'
