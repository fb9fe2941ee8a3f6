--[[
Wrong gateway keys for wrk, half of them well-formed. Each connection makes one request in
DELAY_MS milliseconds on average.

  wrk ... -H "Authorization: ..." -s wrong_keys.lua URL -- DELAY_MS

Prints one line of JSON: requests, microseconds, answers other than 401, and latencies in microseconds.
]]
local count, threads = 0, {}

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  pause = tonumber(arguments[1])
  wrong = 0
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = '{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
end

function delay()
  return math.random(0, 2 * pause) -- spreads the calls: all connections start at the same moment
end

function request()
  count = count + 1
  wrk.headers["Gateway-Auth"] = (count % 2 == 0 and "Bearer not-a-key-" or "Bearer another-key-of-its-own-") .. count
  return wrk.format()
end

function response(status)
  if status ~= 401 then wrong = wrong + 1 end
end

function done(summary, latency, _)
  local total = 0
  for _, thread in ipairs(threads) do total = total + thread:get("wrong") end
  print(string.format(
    '{"requests":%d,"microseconds":%d,"wrong":%d,"p50":%d,"p99":%d}',
    summary.requests, summary.duration, total, latency:percentile(50), latency:percentile(99)
  ))
end
