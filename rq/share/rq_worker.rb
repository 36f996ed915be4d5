# Long-lived workers in Ruby.
#
#   require "#{ENV['RQ_SHARE']}/rq_worker"
#   RQWorker.each do |message|
#     message.run "halfway"
#     message.done "hello #{message['RQ_PARAM1']}"
#   end
#
# The working directory is that of the message, if it has one.

require "json"

module RQWorker
  # A message; its values are those that another script finds in its environment.
  class Message
    def initialize(env, say, hear)
      @env, @say, @hear = env, say, hear
    end

    def [](name) = @env[name]

    def run(text) = say("run", text)
    def done(text = "") = say("done", text)
    def result(text) = say("result", text)
    def relayed(text = "") = say("relayed", text)
    def err(text = "") = say("err", text)
    def resend(seconds, reason = "") = say("resend", "#{seconds}-#{reason}")

    # Copies it to another queue; returns the full id.
    def dup_to(dest, seconds = 0)
      say("dup", "#{seconds}-X-#{dest}")
      word, text = @hear.gets.chomp.split(" ", 2)
      raise text unless word == "ok"
      text
    end

    private

    def say(word, text) = @say.write("#{word} #{text.to_s.split.join(' ')}\n")
  end

  # Yields message after message, until the queue wants this worker to end.
  def self.each
    say = IO.for_fd(3, "w", autoclose: false)
    hear = IO.for_fd(4, "r", autoclose: false)
    say.sync = $stdout.sync = $stderr.sync = true
    loop do
      say.write("ready\n")
      line = hear.gets or return
      message = Message.new(JSON.parse(line), say, hear)
      Dir.chdir(message["RQ_MSG_DIR"] || "/")
      yield message
    end
  end
end
