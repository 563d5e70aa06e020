"""Frequent short words, by which the language of a text is detected, and function words, which have no topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

LEAST = 0.08
"""Lowest fraction of a language's short words in a text; below it the language is unknown."""

SHORT_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to in is that was for it with as his on be at by he this had not are but from or have an",
        "de": "der die und das den von zu ist mit sich des auf für im dem nicht ein eine als auch es an er hat aus bei",
        "fr": "le la les des et est dans du que une pour qui il au sur par ne se pas plus avec ce son elle sont à été",
        "es": "el los las que y en un una por con para es su al lo como más pero sus fue este ha era del se no",
        "it": "il di che è la un una per non con del della si gli dei al più sono come anche nel alla ha ma le lo",
        "pt": "o os as que e em um uma para com não por mais se na no da do dos é ao como foi mas ele são",
        "nl": "de het een van en in is dat op te zijn voor met die niet aan er om ook als naar bij nog maar ze werd",
        "ru": "и в не на что с по это он как но из у за от так к же бы то его для она они был а",
        "uk": "і в не на що з та до як це він але за від у про для або був є ще так її його вони який",
    }.items()
}
"""Short words by which languages are told apart; few of them are frequent in two."""

_OTHERS: dict[str, str] = {
    "en": (
        "about after again against all also am any because been before being between both can could did do does doing "
        "don down during each few further has having her here hers him how if into its just ll me more most must my "
        "no nor now off once only other our ours out over own re same she should since so some still such than their "
        "them then there these they those through thus too under until up upon us ve very we were what when where "
        "whether which while who whom whose why will within without would you your yours however may might one"
    ),
    "de": (
        "ab aber alle allem allen aller alles am andere anderen anderer anderes ans beim bin bis bist da dabei "
        "dadurch dafür damit dann daran darauf daraus darin dass davon dazu dein deine denn deren dessen dich dir "
        "doch dort du durch eigen einem einen einer eines etwas euch euer gegen hab habe haben hatte hatten hier hin "
        "hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres in indem ins ja jede jedem jeden jeder jedes jene "
        "jetzt kann kein keine keinem keinen keiner können könnte man manche mehr mein meine mich mir muss müssen "
        "nach nachdem neben nein noch nun nur ob oder ohne schon sehr sein seine seinem seinen seiner seines seit sie "
        "sind so solche soll sollte sondern sonst über um uns unser unsere unter viel vom vor während war waren warum "
        "was weg weil welche welcher wenn wer werde werden wie wieder will wir wird wirst wo wollen wurde wurden "
        "würde zum zur zwar zwischen"
    ),
    "fr": (
        "ai aux avait avoir ayant car ces cet cette ceux chez comme comment de deux donc dont elles en encore entre "
        "eu eux faire fait ils je leur leurs lui ma mais me même mes moi mon ni nos notre nous on ont ou où peut puis "
        "quand quel quelle qu sa sans ses si soit sous suis ta te tes toi ton tous tout toute toutes très tu un vos "
        "votre vous étaient était être cela aussi après avant"
    ),
    "es": (
        "ante antes así aunque cada cual cuando de desde donde dos durante ella ellas ellos entre eran eres esa esas "
        "ese eso esos esta estaba estado estar estas esto estos está están fueron haber había han hasta hay he la le "
        "les me mi mis mucho muy nada ni nos nosotros nuestra nuestro os otra otro otros porque puede pues qué quien "
        "ser si sido sin sobre son soy también tan tanto te tiene tienen toda todas todo todos tu tus unas uno unos "
        "ya yo"
    ),
    "it": (
        "ad agli ai alle allo ancora avere aveva chi ci ciò cui da dagli dai dal dalla dalle degli delle dello dopo "
        "dove due ed era erano essere fare fatto fra hanno ho in io lei loro lui mi mia mio molto ne negli nei nella "
        "nelle nello noi nostra nostro ogni perché poi prima può qua quale quando quanto quella quelle quelli quello "
        "questa queste questi questo qui se sei senza sia siamo sta stata stato su sua sue sugli sui sul sulla suo "
        "suoi te ti tra tu tutta tutte tutti tutto uno vi voi"
    ),
    "pt": (
        "ainda alguns antes aos após às assim até cada das de dela dele deles depois desde dessa desse desta deste "
        "dois durante ela elas eles entre era eram essa esse esta estava este está estão eu foram há isso isto já lhe "
        "lo me mesmo meu minha muito nas nem nos nossa nosso num numa nós onde ou outra outro pela pelas pelo pelos "
        "pode pois porque quando qual quem sem ser seu seus seja sob sobre sua suas só também tem tinha tudo todos "
        "uns umas você vocês"
    ),
    "nl": (
        "af al alle alles altijd andere ben bent binnen boven dan daar deze dit door doen dus echter elk even geen "
        "geweest haar had hadden heb hebben heeft hem hen hier hij hoe hun ik ja je jij jou jouw kan kon kunnen men "
        "meer mij mijn moet moeten na nee niets nu of omdat onder ons onze over reeds sinds toch toen tot uit uw veel "
        "wat we wel werden wie wij wil worden wordt zal zelf zich zij zo zonder zou zouden"
    ),
    "ru": (
        "без более была были было быть вам вас вот все всего всех вы где да даже ее если есть еще ещё ему здесь или "
        "им их когда которая которые который кто ли либо лишь меня мне может мы над надо нас него нее ней нет ни них "
        "об однако оно очень под после при про раз сам своей свои себя со такой там тем тех того тоже только том тот "
        "ты уже чем через чтобы эта эти этого этой этом этот"
    ),
    "uk": (
        "без би бо буде була були було бути ви все всі де же зі йому коли кожен крім лише ми мене може між над нас "
        "нею ним них ні нього об один однак по при під разом саме свої своїй себе також там те ти тим того той тому "
        "тут хто ця цей ці цього цьому час через чи щоб яка яке які якщо"
    ),
}
_FUNCTION_WORDS = {language: short | {*_OTHERS[language].split()} for language, short in SHORT_WORDS.items()}
_ANY_SHORT = frozenset().union(*SHORT_WORDS.values())


def short_words(words: Iterable[str]) -> list[str]:
    """Return those of the words (lower case) that are short words of any language, repeated ones too."""
    return [word for word in words if word in _ANY_SHORT]


def function_words(counts: Mapping[str, int], total: int) -> frozenset[str]:
    """Return the function words of the languages of a text; none for a language that is not in SHORT_WORDS.

    `counts`: how often the text has each of its `short_words`; `total`: its number of words.

    >>> words = function_words({"the": 3, "of": 2}, 20)
    >>> "which" in words, "der" in words
    (True, False)
    """
    function: frozenset[str] = frozenset()
    for language, short in SHORT_WORDS.items():
        if total and sum(counts.get(word, 0) for word in short) >= LEAST * total:
            function |= _FUNCTION_WORDS[language]
    return function
